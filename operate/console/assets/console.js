// Refreshes the regions `data-live` of a page. Every page works without this script.
"use strict";
(() => {
  const PERIOD = 5000;
  const regions = () => [...document.querySelectorAll("[data-live]")];
  const status = document.getElementById("live");
  if (regions().length === 0 || status === null) return;

  let isPaused = false;
  const button = document.createElement("button");
  const text = document.createElement("span");
  button.type = "button";
  button.className = "quiet";
  status.append(text, " ", button);
  status.hidden = false;

  // A selection or a form in use must not change below the reader.
  const isInUse = () =>
    regions().some((region) => region.querySelector("input:checked") !== null || region.contains(document.activeElement));

  const show = (message) => {
    text.textContent = message;
    button.textContent = isPaused ? "Resume" : "Pause";
  };

  // Parsed by the browser as an inert document: this is no sink of scripts, so that Trusted Types hold.
  const load = () =>
    new Promise((resolve, reject) => {
      const request = new XMLHttpRequest();
      request.open("GET", location.href);
      request.responseType = "document";
      request.timeout = 10000;
      request.onload = () =>
        request.status === 200 && request.response !== null ? resolve(request.response) : reject(new Error(`status ${request.status}`));
      request.onerror = () => reject(new Error("no connection"));
      request.ontimeout = () => reject(new Error("no answer"));
      request.send();
    });

  const refresh = async () => {
    if (isPaused || document.hidden || isInUse()) return;
    try {
      const page = await load();
      if (isPaused || isInUse()) return;
      for (const region of regions()) {
        const fresh = page.querySelector(`[data-live="${region.dataset.live}"]`);
        if (fresh !== null) region.replaceChildren(...document.adoptNode(fresh).childNodes);
      }
      show(`Live: ${new Date().toLocaleTimeString()}`);
    } catch (error) {
      show(`Not refreshed: ${error.message}`);
    }
  };

  button.addEventListener("click", () => {
    isPaused = !isPaused;
    show(isPaused ? "Paused" : "Live");
    refresh();
  });
  show("Live");
  setInterval(refresh, PERIOD);
})();
