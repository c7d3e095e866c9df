-- torchlint in Neovim 0.11 or later: put this file into `lsp/torchlint.lua` of your configuration and say
-- `vim.lsp.enable("torchlint")` in init.lua.

return {
  cmd = { "torchlint", "server" },
  filetypes = { "python" },
  root_markers = { ".git", "pyproject.toml", "torchlint.toml", "setup.py", "setup.cfg" },
}
