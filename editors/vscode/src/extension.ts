/** Starts torchlint's language server for Python files and notebooks, and keeps it in step with the settings. */

import { homedir } from "node:os";
import * as vscode from "vscode";
import { LanguageClient, type LanguageClientOptions, TransportKind } from "vscode-languageclient/node";
import { type Command, needsRestart, type Place, serverCommand, type Settings, serverSettings } from "./settings";

const PYTHON_EXTENSION = "ms-python.python";

let client: LanguageClient | undefined;
let running: Command | undefined;
let steps: Promise<void> = Promise.resolve();

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  context.subscriptions.push(
    vscode.commands.registerCommand("torchlint.restart", () => inTurn(restart)),
    vscode.commands.registerCommand("torchlint.checkAll", () =>
      client?.sendRequest("workspace/executeCommand", { command: "torchlint.checkWorkspace", arguments: [] }),
    ),
    vscode.workspace.onDidChangeConfiguration((event) => {
      if (event.affectsConfiguration("torchlint")) {
        void inTurn(applySettings);
      }
    }),
    vscode.workspace.onDidGrantWorkspaceTrust(() => inTurn(applySettings)),
  );
  const python = vscode.extensions.getExtension(PYTHON_EXTENSION);
  const changed = (python?.isActive ? python.exports : await python?.activate())?.environments
    ?.onDidChangeActiveEnvironmentPath;
  if (changed) {
    context.subscriptions.push(changed(() => inTurn(applySettings)));
  }
  await inTurn(applySettings);
}

export async function deactivate(): Promise<void> {
  await inTurn(stop);
}

/** One step after the other: two settings that change at once must not start two servers. */
function inTurn(step: () => Promise<void>): Promise<void> {
  steps = steps.then(step).catch((error) => {
    void vscode.window.showErrorMessage(`torchlint: the server could not be started: ${error}`);
  });
  return steps;
}

async function applySettings(): Promise<void> {
  if (!vscode.workspace.getConfiguration("torchlint").get<boolean>("enable", true)) {
    return stop();
  }
  const command = serverCommand(settings(), place());
  if (client === undefined || running === undefined || needsRestart(running, command)) {
    return restart();
  }
  await client.sendNotification("workspace/didChangeConfiguration", { settings: serverSettings(settings(), place()) });
}

async function restart(): Promise<void> {
  await stop();
  running = serverCommand(settings(), place());
  const options: LanguageClientOptions = {
    documentSelector: [
      { scheme: "file", language: "python" },
      { scheme: "untitled", language: "python" },
      { scheme: "vscode-notebook-cell", language: "python" },
    ],
    initializationOptions: serverSettings(settings(), place()),
  };
  const server = { ...running, transport: TransportKind.stdio };
  client = new LanguageClient("torchlint", "torchlint", server, options);
  await client.start();
}

async function stop(): Promise<void> {
  const stopping = client;
  client = running = undefined;
  await stopping?.dispose();
}

function settings(): Settings {
  const found = vscode.workspace.getConfiguration("torchlint");
  return {
    path: found.get("path", ""),
    interpreter: found.get("interpreter", ""),
    diagnosticMode: found.get("diagnosticMode", "openFiles"),
    debounce: found.get("debounce", 100),
    configuration: found.get("configuration", ""),
  };
}

function place(): Place {
  const folder = vscode.workspace.workspaceFolders?.[0]?.uri;
  const python = vscode.extensions.getExtension(PYTHON_EXTENSION);
  const selected: unknown = python?.exports?.environments?.getActiveEnvironmentPath?.(folder)?.path;
  return {
    selectedInterpreter: typeof selected === "string" && selected !== "" ? selected : undefined,
    folder: folder?.fsPath,
    home: homedir(),
    isTrusted: vscode.workspace.isTrusted,
  };
}
