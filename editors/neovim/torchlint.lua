-- torchlint in Neovim, 0.7 or later, without any plugin. Put this file into the folder `lua` of your configuration
-- and say `require("torchlint").setup()` in init.lua. `setup` takes a table:
--   cmd       the command that starts the server, { "torchlint", "server" } by default
--   settings  what the server is told: { diagnosticMode = "workspace", debounce = 100, configuration = "lint.toml" }

local M = {}

local MARKERS = { ".git", "pyproject.toml", "torchlint.toml", "setup.py", "setup.cfg" }

--- The nearest folder above a file that holds a marker, else the file's own folder.
local function root_of(path)
  local folder = vim.fn.fnamemodify(path, ":p:h")
  local start = folder
  while true do
    for _, marker in ipairs(MARKERS) do
      if vim.loop.fs_stat(folder .. "/" .. marker) then
        return folder
      end
    end
    local parent = vim.fn.fnamemodify(folder, ":h")
    if parent == folder then
      return start
    end
    folder = parent
  end
end

local clients = {} -- by root

--- Starts the server for the project of a buffer, or attaches the one that is there.
function M.attach(buffer, options)
  local name = vim.api.nvim_buf_get_name(buffer)
  if name == "" or vim.bo[buffer].buftype ~= "" then
    return
  end
  local root = root_of(name)
  if not clients[root] or vim.lsp.client_is_stopped(clients[root]) then
    clients[root] = vim.lsp.start_client({
      name = "torchlint",
      cmd = options.cmd,
      root_dir = root,
      workspace_folders = { { uri = vim.uri_from_fname(root), name = root } },
      init_options = options.settings,
    })
  end
  if clients[root] then
    vim.lsp.buf_attach_client(buffer, clients[root])
  end
end

--- Makes all safe fixes in the current buffer. Useful before it is written.
function M.fix_all()
  local buffer = vim.api.nvim_get_current_buf()
  local range = { start = { line = 0, character = 0 }, ["end"] = { line = 0, character = 0 } }
  local parameters = {
    textDocument = vim.lsp.util.make_text_document_params(buffer),
    range = range,
    context = { diagnostics = {}, only = { "source.fixAll.torchlint" } },
  }
  for id, answer in pairs(vim.lsp.buf_request_sync(buffer, "textDocument/codeAction", parameters, 5000) or {}) do
    local client = vim.lsp.get_client_by_id(id)
    for _, action in ipairs(answer.result or {}) do
      if not action.edit and action.data then
        local resolved = vim.lsp.buf_request_sync(buffer, "codeAction/resolve", action, 5000) or {}
        action = (resolved[id] or {}).result or action
      end
      if action.edit then
        vim.lsp.util.apply_workspace_edit(action.edit, client.offset_encoding)
      end
    end
  end
end

function M.setup(options)
  options = vim.tbl_extend("force", { cmd = { "torchlint", "server" }, settings = vim.empty_dict() }, options or {})
  local group = vim.api.nvim_create_augroup("torchlint", { clear = true })
  vim.api.nvim_create_autocmd("FileType", {
    group = group,
    pattern = "python",
    callback = function(event)
      M.attach(event.buf, options)
    end,
  })
  vim.api.nvim_create_user_command("TorchlintFixAll", M.fix_all, { desc = "Make all of torchlint's safe fixes" })
end

return M
