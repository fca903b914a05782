"""What both worker services run: a standing order carried out step by step, and its reports."""
