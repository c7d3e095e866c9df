// What the editor's settings mean for the server.

import assert from "node:assert/strict";
import { test } from "node:test";
import { build } from "esbuild";

const built = await build({ entryPoints: ["src/settings.ts"], bundle: true, write: false, format: "esm" });
const source = Buffer.from(built.outputFiles[0].contents).toString("base64");
const { needsRestart, serverCommand, serverSettings } = await import(`data:text/javascript;base64,${source}`);

const SETTINGS = { path: "", interpreter: "", diagnosticMode: "openFiles", debounce: 100, configuration: "" };
const PLACE = { selectedInterpreter: undefined, folder: "/code/my project", home: "/home/ada", isTrusted: true };

test("without settings the program on the PATH is started", () => {
  assert.deepEqual(serverCommand(SETTINGS, PLACE), { command: "torchlint", args: ["server"] });
});

test("the interpreter that is selected for the project is started before the PATH is searched", () => {
  const place = { ...PLACE, selectedInterpreter: "/envs/a b/bin/python" };
  assert.deepEqual(serverCommand(SETTINGS, place), {
    command: "/envs/a b/bin/python",
    args: ["-m", "torchlint", "server"],
  });
});

test("an interpreter that an untrusted folder selects is not started", () => {
  const place = { ...PLACE, selectedInterpreter: "/code/my project/.venv/bin/python", isTrusted: false };
  assert.equal(serverCommand(SETTINGS, place).command, "torchlint");
});

test("a path comes before an interpreter, and both before the selection", () => {
  const place = { ...PLACE, selectedInterpreter: "/usr/bin/python3" };
  const both = { ...SETTINGS, path: " ~/bin/torchlint ", interpreter: "/opt/python" };
  assert.deepEqual(serverCommand(both, place), { command: "/home/ada/bin/torchlint", args: ["server"] });
  const one = { ...SETTINGS, interpreter: "${workspaceFolder}/.venv/bin/python" };
  assert.equal(serverCommand(one, place).command, "/code/my project/.venv/bin/python");
});

test("dollar signs in a folder's name are only a name", () => {
  const place = { ...PLACE, folder: "/code/$&$1" };
  assert.equal(serverCommand({ ...SETTINGS, path: "${workspaceFolder}/t" }, place).command, "/code/$&$1/t");
});

test("the server is told what is set, and nothing that is empty", () => {
  assert.deepEqual(serverSettings(SETTINGS, PLACE), { diagnosticMode: "openFiles", debounce: 100 });
  const chosen = { ...SETTINGS, diagnosticMode: "workspace", debounce: -3.2, configuration: "~/lint.toml" };
  assert.deepEqual(serverSettings(chosen, PLACE), {
    diagnosticMode: "workspace",
    debounce: 0,
    configuration: "/home/ada/lint.toml",
  });
});

test("only another command needs another server", () => {
  const command = serverCommand(SETTINGS, PLACE);
  assert.equal(needsRestart(command, serverCommand({ ...SETTINGS, debounce: 5 }, PLACE)), false);
  assert.equal(needsRestart(command, serverCommand({ ...SETTINGS, interpreter: "/x" }, PLACE)), true);
});
