// One WebSocket for all that streams to the page: a browser has six other connections to a server
// for all its tabs.
import { gateway, signOutEvents } from "./api.js";

const silence = 40_000; // ms; the gateway says something every 15 s
let link,
  pageKey, // by which the gateway shows that it is the one of before
  numbers = 0;

const ofHex = (hex) => Uint8Array.from(hex.match(/../g) ?? [], (b) => parseInt(b, 16));
const toHex = (bytes) => Array.from(bytes, (b) => b.toString(16).padStart(2, "0")).join("");

// isOurs reports whether the gateway has answered a challenge as the one of before does. Its first
// answer is the key, which the page keeps. Pages of plain http at a name of the user's can't check
// it.
async function isOurs(answer, challenge) {
  if (!crypto.subtle) return true;
  if (pageKey) return crypto.subtle.verify("HMAC", pageKey, ofHex(answer.proof ?? ""),
    new TextEncoder().encode(challenge));
  pageKey = await crypto.subtle.importKey("raw", ofHex(answer.key ?? ""),
    { name: "HMAC", hash: "SHA-256" }, false,
    ["verify"]);
  return true;
}

// Without a network nothing tells that a connection is lost. One within the machine is there again
// at once.
addEventListener("offline", () => link?.lose());

// connected returns the link, which it opens if there is none.
function connected() {
  if (link) return link;
  const socket = new WebSocket(`${location.origin.replace("http", "ws")}/page/streams`);
  socket.binaryType = "arraybuffer";
  const streams = new Map(); // what takes the messages of a stream, by its number
  let timer,
    isProven = false;
  const challenge = pageKey ? toHex(crypto.getRandomValues(new Uint8Array(16))) : "";
  const lose = () => {
    clearTimeout(timer);
    if (link === mine) link = null;
    gateway.isTrusted = false;
    socket.close();
    for (const s of [...streams.values()]) s.end(new Error("the connection is lost"));
  };
  const listen = () => {
    clearTimeout(timer);
    timer = setTimeout(lose, silence);
  };
  const mine = (link = { socket, streams, lose });
  mine.opened = new Promise((resolve, reject) => {
    mine.prove = (answer) => isOurs(answer, challenge).catch(() => false).then((is) => {
      if (!is || link !== mine) return lose();
      gateway.isTrusted = isProven = true;
      resolve();
    });
    socket.onopen = () => {
      listen();
      socket.send(JSON.stringify({ challenge }));
    };
    socket.onclose = () => {
      lose();
      reject(new Error("there is no connection"));
    };
  });
  // A browser does not tell why it has no connection. If it is signed out, or the gateway is
  // another, this answer says so; a stranger who gives it gains nothing by it.
  mine.opened.catch(() => fetch("/api/v1/status").then(({ status }) => {
    if (status === 401 || status === 421) signOutEvents.dispatchEvent(new Event("signedout"));
  }, () => {}));
  socket.onmessage = ({ data }) => {
    listen();
    if (!isProven) return mine.prove(typeof data === "string" ? JSON.parse(data) : {});
    if (typeof data !== "string") {
      return streams.get(new DataView(data).getUint32(0))?.bytes(new Uint8Array(data, 4));
    }
    const { stream, status, ended } = JSON.parse(data);
    if (ended) streams.get(stream)?.end();
    else streams.get(stream)?.begin(status);
  };
  return mine;
}

// stream asks for a path of the admin API, as fetch does. lastEventId is of the last event that the
// caller has, or "".
export function stream(path, lastEventId, signal) {
  return new Promise((resolve, reject) => {
    const { socket, streams, opened } = connected(),
      number = ++numbers;
    let controller;
    const body = new ReadableStream({ start: (c) => (controller = c) });
    const end = (error) => {
      if (!streams.delete(number)) return;
      signal.removeEventListener("abort", abort);
      if (error) controller.error(error);
      else controller.close();
      reject(error); // has no effect after begin
    };
    const abort = () => {
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ stream: number }));
      end(signal.reason);
    };
    streams.set(number, {
      begin: (status) => resolve(new Response(body, { status })),
      bytes: (b) => controller.enqueue(b),
      end,
    });
    signal.addEventListener("abort", abort);
    opened.then(() => {
      if (streams.has(number)) socket.send(JSON.stringify({ stream: number, path, lastEventId }));
    }, end);
  });
}
