-- What somebody does in Neovim: open a file, look at its diagnostics, repair one, repair all. The results go to a file.

local folder, python, result = unpack(vim.split(vim.env.TORCHLINT_SESSION, "\n"))
package.path = folder .. "/editors/neovim/?.lua;" .. package.path

local function until_true(what, happened)
  if not vim.wait(30000, happened, 20) then
    error("waited in vain for " .. what)
  end
end

local function codes()
  local found = {}
  for _, diagnostic in ipairs(vim.diagnostic.get(0)) do
    local code = diagnostic.code or ((diagnostic.user_data or {}).lsp or {}).code
    table.insert(found, code .. " " .. diagnostic.lnum .. ":" .. diagnostic.col .. " " .. diagnostic.source)
  end
  table.sort(found)
  return found
end

local function text()
  return table.concat(vim.api.nvim_buf_get_lines(0, 0, -1, false), "\n")
end

local function session()
  vim.cmd("filetype on")
  require("torchlint").setup({ cmd = { python, "-m", "torchlint", "server" }, settings = { debounce = 20 } })
  vim.cmd("edit train.py")
  local said = {}
  until_true("diagnostics", function()
    return #vim.diagnostic.get(0) == 3
  end)
  said.opened = codes()

  local offered = {}
  vim.ui.select = function(items, options, choose)
    for _, item in ipairs(items) do
      local action = item[2] or item.action
      table.insert(offered, action.title)
      if vim.startswith(action.title, "TL201") then
        choose(item)
      end
    end
  end
  local before = text()
  vim.api.nvim_win_set_cursor(0, { 8, 6 })
  vim.lsp.buf.code_action()
  until_true("the fix", function()
    return text() ~= before
  end)
  said.offered, said.fixed = offered, text()
  until_true("diagnostics after the fix", function()
    return #vim.diagnostic.get(0) == 2
  end)
  said.left = codes()

  before = text()
  vim.cmd("TorchlintFixAll")
  until_true("all fixes", function()
    return text() ~= before
  end)
  said.all = text()
  return said
end

local done, said = pcall(session)
local file = assert(io.open(result, "w"))
file:write(vim.fn.json_encode(done and said or { error = tostring(said) }))
file:close()
vim.cmd("qall!")
