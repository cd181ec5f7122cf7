// The server writes the parts of the page. This file puts them into the page as they change.
"use strict";
(() => {
  const status = document.getElementById("connection");
  const others = document.getElementById("others");
  const most = Number(document.body.dataset.most);
  const path = document.body.dataset.stream;
  if (!path || !window.EventSource) { return; }

  const element = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };
  const rowOf = (id) => document.getElementById("row " + id);
  const trim = () => { while (others.rows.length > most) { others.rows[others.rows.length - 1].remove(); } };

  // What a person has unfolded stays unfolded.
  const keepingOpen = (place, change) => {
    const unfolded = Array.from(place.querySelectorAll("details[open]"), (details) => details.id);
    change();
    for (const id of unfolded) {
      const details = document.getElementById(id);
      if (details) { details.open = true; }
    }
  };

  // What has the focus keeps it when it is written again.
  const keepingFocus = (change) => {
    const active = document.activeElement;
    const place = active && active.closest("[id]");
    change();
    if (!active || active.isConnected || !place) { return; }
    const root = document.getElementById(place.id);
    const isSame = (other) => other.textContent === active.textContent && other.getAttribute("href") === active.getAttribute("href");
    const same = root && Array.from(root.querySelectorAll(active.tagName)).find(isSame);
    if (same) { same.focus({ preventScroll: true }); }
  };

  // What is being selected to be copied stays until it is not selected any more.
  const waiting = new Map();
  const isSelected = (place) => {
    const selection = document.getSelection();
    return selection && !selection.isCollapsed && place.contains(selection.anchorNode);
  };
  const show = () => {
    for (const [id, html] of waiting) {
      const place = document.getElementById(id);
      if (place && isSelected(place)) { continue; }
      waiting.delete(id);
      if (place) { keepingFocus(() => keepingOpen(place, () => { place.innerHTML = html; })); }
    }
    ages();
  };
  document.addEventListener("selectionchange", () => { if (waiting.size > 0) { show(); } });

  // The server sends what has changed since the version of this page.
  const query = new URLSearchParams(window.location.search);
  if (document.body.dataset.cursor) { query.set("after", document.body.dataset.cursor); }
  const stream = new EventSource(path + "?" + query);
  stream.addEventListener("rows", (event) => {
    // The last one changed last: it becomes the first.
    keepingFocus(() => {
      for (const row of JSON.parse(event.data).reverse()) {
        const old = rowOf(row.id);
        if (old) { old.remove(); }
        if (row.html) { others.prepend(element(row.html)); }
      }
    });
    trim();
    ages();
  });
  stream.addEventListener("parts", (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) { waiting.set(id, html); }
    show();
  });
  stream.addEventListener("again", () => window.location.reload());
  stream.onopen = () => { status.textContent = "live"; };
  stream.onerror = () => { status.textContent = "connection lost, trying again"; };

  const span = (seconds) => {
    const s = Math.max(0, Math.round(seconds));
    if (s < 60) { return s + " s"; }
    if (s < 3600) { return Math.floor(s / 60) + " min"; }
    return Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  };
  const ages = () => {
    const now = Date.now() / 1000;
    for (const time of document.querySelectorAll("time[data-age], time[data-left]")) {
      const at = Date.parse(time.dateTime) / 1000;
      const text = span("age" in time.dataset ? now - at : at - now);
      if (time.textContent !== text) { time.textContent = text; }
    }
  };
  setInterval(ages, 10000);
})();
