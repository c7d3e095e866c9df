"""One module for each output format; each turns file reports into lines or text, and knows nothing of the others."""
