"""The web console as a server: its command, routes, logins and checks of requests."""
