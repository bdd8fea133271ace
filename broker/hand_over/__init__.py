"""After a transfer the old master hands clients' requests on to the new one."""
