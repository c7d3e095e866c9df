/** From the editor's settings to the command that starts the server, and to what the server is told. */

export interface Settings {
  path: string;
  interpreter: string;
  diagnosticMode: "openFiles" | "workspace";
  debounce: number;
  configuration: string;
}

/** What is known of the place: the interpreter that the Python extension has selected, and whether it is trusted. */
export interface Place {
  selectedInterpreter?: string;
  folder?: string;
  home: string;
  isTrusted: boolean;
}

export interface Command {
  command: string;
  args: string[];
}

/**
 * The command that starts the server. A program that the settings name comes first, then the interpreter that they
 * name, then the selected one, then whatever the PATH holds. An interpreter that an untrusted folder brings along is
 * not started.
 */
export function serverCommand(settings: Settings, place: Place): Command {
  if (settings.path.trim()) {
    return { command: expanded(settings.path, place), args: ["server"] };
  }
  const interpreter = settings.interpreter.trim()
    ? expanded(settings.interpreter, place)
    : place.isTrusted
      ? place.selectedInterpreter
      : undefined;
  if (interpreter) {
    return { command: interpreter, args: ["-m", "torchlint", "server"] };
  }
  return { command: "torchlint", args: ["server"] };
}

/** What the server is told when it starts, and again when a setting changes. Empty settings are left out. */
export function serverSettings(settings: Settings, place: Place): Record<string, unknown> {
  const told: Record<string, unknown> = {
    diagnosticMode: settings.diagnosticMode,
    debounce: Math.max(0, Math.round(settings.debounce)),
  };
  if (settings.configuration.trim()) {
    told.configuration = expanded(settings.configuration, place);
  }
  return told;
}

/** Whether a change of the settings needs another server, not only another word to the one that runs. */
export function needsRestart(before: Command, after: Command): boolean {
  return before.command !== after.command || before.args.join("\0") !== after.args.join("\0");
}

function expanded(path: string, place: Place): string {
  const folder = place.folder;
  let result = path.trim();
  if (folder !== undefined) {
    result = result.split("${workspaceFolder}").join(folder);
  }
  if (result === "~" || result.startsWith("~/") || result.startsWith("~\\")) {
    result = place.home + result.slice(1);
  }
  return result;
}
