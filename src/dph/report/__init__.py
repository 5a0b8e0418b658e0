"""Tables, figures and an HTML page from finished runs."""
