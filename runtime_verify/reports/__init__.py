"""How a table of measurements is shown: one module for each form."""
