"""Front doors for other linters: each takes part in their run with one run of torchlint."""
