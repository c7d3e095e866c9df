/* Search without a server: browsers start no worker from a file:// address, so there a hidden frame does its work.
 * The name of this file tells mkdocs-material's offline plugin that it need not fetch a script for this from elsewhere. */
"use strict";

if (location.protocol === "file:") {
  window.Worker = class FrameWorker extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      this.frame = frame;
      this.started = new Promise((resolve, reject) => {
        const scope = frame.contentWindow;
        // What the worker's script posts goes to whoever listens to this object.
        scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const script = frame.contentDocument.createElement("script");
        script.src = url;
        script.onload = resolve;
        script.onerror = () => reject(new Error(`${url}: cannot be loaded`));
        frame.contentDocument.head.append(script);
      });
    }

    postMessage(data) {
      this.started.then(() => {
        const scope = this.frame.contentWindow;
        scope.dispatchEvent(new scope.MessageEvent("message", { data }));
      });
    }

    terminate() {
      this.frame.remove();
    }
  };
}
