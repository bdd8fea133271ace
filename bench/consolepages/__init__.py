"""How long the pages of the web console take."""
