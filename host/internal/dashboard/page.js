// Follows the chain: the server sends its parts of the page anew, and what differs is changed in place, so that focus,
// selection and folded parts stay as they are.
"use strict";

const connection = document.getElementById("connection");
const find = document.getElementById("find");
const silence = 5000; // milliseconds after which a server that sends an update each second does not respond

let latest = Date.now(); // when the chain was as it is shown
let lost = false; // whether it is known that this is not the chain as it is

// morph makes an element like another one.
function morph(from, to) {
  for (const { name } of [...from.attributes]) {
    if (!to.hasAttribute(name) && !(name === "open" && from.localName === "details")) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  let old = from.firstChild;
  for (const next of [...to.childNodes]) {
    // An element that has gone leaves its place to the one that came after it.
    if (next.id && old && old.id !== next.id) {
      const later = [...from.children].find((child) => child.id === next.id);
      while (later && old !== later) {
        const gone = old;
        old = old.nextSibling;
        gone.remove();
      }
    }
    if (old && old.nodeName === next.nodeName && (old.id || "") === (next.id || "")) {
      const following = old.nextSibling;
      if (old.nodeType === Node.ELEMENT_NODE) morph(old, next);
      else if (old.nodeValue !== next.nodeValue) old.nodeValue = next.nodeValue;
      old = following;
    } else {
      from.insertBefore(next, old);
    }
  }
  while (old) {
    const gone = old;
    old = old.nextSibling;
    gone.remove();
  }
}

// filter shows the claims that contain what is typed.
function filter() {
  const text = find.value.trim();
  let count = 0;
  for (const list of document.querySelectorAll(".claims")) {
    let inStage = 0;
    for (const claim of list.children) {
      claim.hidden = !claim.textContent.includes(text) && !list.dataset.stage.includes(text);
      if (!claim.hidden) inStage++;
    }
    if (text && inStage) list.parentElement.open = true;
    list.parentElement.hidden = !inStage && Boolean(text);
    count += inStage;
  }
  const found = document.getElementById("found");
  if (found.textContent !== `${count} claims`) found.textContent = `${count} claims`;
}

function show(html) {
  const update = new DOMParser().parseFromString(html, "text/html");
  for (const part of ["live-chain", "live-claims"]) {
    morph(document.getElementById(part), document.importNode(update.getElementById(part), true));
  }
  filter();
  latest = Date.now();
  lost = false;
  document.body.classList.remove("lost");
  document.title = document.querySelector(".summary").dataset.title;
}

function say(mood, text) {
  connection.className = `mood-${mood}`;
  if (connection.textContent !== text) connection.textContent = text;
}

function age(seconds) {
  return seconds < 120 ? `${seconds}s` : `${Math.floor(seconds / 60)}m${seconds % 60}s`;
}

// watch says that the page shows the past, and for how long, when there is nothing new.
function watch() {
  const old = Date.now() - latest;
  if (!lost && old < silence) return;
  document.title = "Catena: no host";
  document.body.classList.add("lost");
  const summary = document.querySelector(".summary");
  summary.className = "summary mood-bad";
  summary.textContent = `No word from the host for ${age(Math.round(old / 1000))}: this is the chain as it was at ${new Date(latest).toLocaleTimeString()}`;
}

function lose(text) {
  say("bad", text);
  lost = true;
  watch();
}

function follow() {
  const events = new EventSource("events");
  events.addEventListener("live", (e) => {
    say("good", "live");
    show(e.data);
  });
  events.addEventListener("problem", (e) => lose(e.data));
  events.onerror = () => {
    lose("The server does not respond.");
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 5000); // refused, not broken off
  };
}

find.addEventListener("input", filter);
find.form.addEventListener("submit", (e) => e.preventDefault());
setInterval(watch, 1000);
follow();
