// What the packaged extension holds, and that its client starts in something that looks like the editor.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync } from "node:fs";
import Module, { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

const vsix = "dist/torchlint.vsix";
const unpacked = mkdtempSync(join(tmpdir(), "torchlint-vsix-"));
execFileSync("python3", ["-m", "zipfile", "-e", vsix, unpacked]);
const extension = join(unpacked, "extension");
const manifest = JSON.parse(readFileSync(join(extension, "package.json"), "utf8"));

test("the package holds the client, the manifest and the licence, and nothing else", () => {
  const names = execFileSync("python3", ["-c", "import sys, zipfile; print('\\n'.join(zipfile.ZipFile(sys.argv[1]).namelist()))", vsix], {
    encoding: "utf8",
  });
  assert.deepEqual(names.trim().split(/\r?\n/).sort(), [
    "[Content_Types].xml",
    "extension.vsixmanifest",
    "extension/LICENSE.txt",
    "extension/dist/extension.js",
    "extension/package.json",
    "extension/readme.md",
  ]);
});

test("the client carries its library along", () => {
  const code = readFileSync(join(extension, manifest.main), "utf8");
  const wanted = [...code.matchAll(/require\("([^"./][^"]*)"\)/g)].map((found) => found[1]);
  const foreign = new Set(wanted.filter((name) => !Module.isBuiltin(name)));
  assert.deepEqual([...foreign], ["vscode"]);
});

test("every setting that the client reads is declared, with the default that it assumes", () => {
  const declared = manifest.contributes.configuration.properties;
  const source = readFileSync("src/extension.ts", "utf8");
  const read = [...source.matchAll(/\.get(?:<\w+>)?\("(\w+)", ([^)]+)\)/g)];
  assert.equal(read.length, Object.keys(declared).length);
  for (const [, name, fallback] of read) {
    assert.deepEqual(declared[`torchlint.${name}`].default, JSON.parse(fallback), name);
  }
});

test("the commands of the manifest are those that the client registers when it starts", async () => {
  const registered = [];
  const { vscode, shown } = editor((name) => registered.push(name));
  const load = Module._load;
  Module._load = (request, ...rest) => (request === "vscode" ? vscode : load(request, ...rest));
  try {
    const client = createRequire(import.meta.url)(join(extension, manifest.main));
    await client.activate({ subscriptions: [] });
    await client.deactivate();
  } finally {
    Module._load = load;
  }
  assert.deepEqual(registered.sort(), manifest.contributes.commands.map((entry) => entry.command).sort());
  assert.deepEqual(shown, []);
});

/** As much of the editor as the client touches while it is switched off. */
function editor(onCommand) {
  const shown = [];
  const listener = () => ({ dispose() {} });
  const known = {
    commands: { registerCommand: (name) => (onCommand(name), { dispose() {} }) },
    extensions: { getExtension: () => undefined },
    window: { showErrorMessage: (text) => shown.push(text) },
    workspace: {
      isTrusted: true,
      workspaceFolders: undefined,
      onDidChangeConfiguration: listener,
      onDidGrantWorkspaceTrust: listener,
      getConfiguration: () => ({ get: (name, fallback) => (name === "enable" ? false : fallback) }),
    },
  };
  // The library makes subclasses of whatever classes the editor has.
  const vscode = new Proxy(known, { get: (target, name) => target[name] ?? (target[name] = class {}) });
  return { vscode, shown };
}
