"""The demo model: its prompt encoder (words.py) and the scripts that train it. Nothing here runs at start-up."""
