"""The web console: serving has command, routes and logins; views has a module for each page."""
