"""The effect of a tenant's quota on another tenant."""
