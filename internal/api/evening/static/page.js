// The server writes the rows. This file puts them into the page as they change.
"use strict";
(() => {
  const problems = document.getElementById("problems");
  const others = document.getElementById("others");
  const status = document.getElementById("connection");
  const most = Number(document.body.dataset.most);
  if (!problems || !window.EventSource) { return; }

  const element = (html) => {
    const template = document.createElement("template");
    template.innerHTML = html;
    return template.content.firstElementChild;
  };
  const rowOf = (id) => document.getElementById("row " + id);
  const trim = () => { while (others.rows.length > most) { others.rows[others.rows.length - 1].remove(); } };

  const stream = new EventSource("events" + window.location.search);
  stream.addEventListener("rows", (event) => {
    // The last one changed last: it becomes the first.
    for (const row of JSON.parse(event.data).reverse()) {
      const old = rowOf(row.id);
      if (old) { old.remove(); }
      if (row.html) { (row.problem ? problems : others).prepend(element(row.html)); }
    }
    trim();
    ages();
  });
  stream.addEventListener("head", (event) => {
    for (const [id, html] of Object.entries(JSON.parse(event.data))) {
      const place = document.getElementById(id);
      if (place) { place.innerHTML = html; }
    }
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
      time.textContent = span("age" in time.dataset ? now - at : at - now);
    }
  };
  setInterval(ages, 10000);
})();
