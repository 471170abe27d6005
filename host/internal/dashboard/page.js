// Follows the chain: the server sends its parts of the page anew, and what differs is changed in place, so that focus,
// selection and folded parts stay as they are.
"use strict";

const connection = document.getElementById("connection");
const find = document.getElementById("find");

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
  document.title = document.querySelector(".summary").dataset.title;
}

function say(mood, text) {
  connection.className = `mood-${mood}`;
  if (connection.textContent !== text) connection.textContent = text;
}

function follow() {
  const events = new EventSource("events");
  events.addEventListener("live", (e) => {
    say("good", "live");
    show(e.data);
  });
  events.addEventListener("problem", (e) => say("bad", e.data));
  events.onerror = () => {
    say("bad", "The server does not respond: this is the chain as it was.");
    if (events.readyState === EventSource.CLOSED) setTimeout(follow, 5000); // refused, not broken off
  };
}

find.addEventListener("input", filter);
find.form.addEventListener("submit", (e) => e.preventDefault());
follow();
