// A browser starts no worker on a page that was opened from a disk. There the search runs in a hidden frame instead, which is what
// the theme's worker expects where it finds this name.
if (location.protocol === "file:") {
  const loaded = (frame, url) =>
    new Promise((done, failed) => {
      const script = frame.document.createElement("script")
      Object.assign(script, { src: url, onload: done, onerror: failed })
      frame.document.body.append(script)
    })

  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const element = Object.assign(document.createElement("iframe"), { hidden: true })
      document.body.append(element)
      const frame = (this.frame = element.contentWindow)
      frame.document.open()
      frame.document.write("<body></body>")
      frame.document.close()
      frame.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }))
      frame.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => loaded(frame, one)), Promise.resolve())
      this.started = loaded(frame, url)
    }

    postMessage(data) {
      this.started.then(() => this.frame.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
  window.Worker = window.IFrameWorker
}
