/* Search from disk. Browsers start no worker for a page opened as file://, so a hidden frame runs the
   script of the worker. The plugin `offline` would load such a replacement from the network. */
if (location.protocol === "file:") {
  const load = (inside, url) =>
    new Promise((resolve, reject) => {
      const script = inside.document.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = () => reject(new Error(`${url} could not be loaded`));
      inside.document.head.append(script);
    });

  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inside = this.frame.contentWindow;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      inside.importScripts = async (...urls) => {
        for (const next of urls) await load(inside, next);
      };
      this.ready = load(inside, url);
    }

    postMessage(data) {
      const message = new MessageEvent("message", { data });
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(message));
    }
  };
}
