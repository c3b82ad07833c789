// One WebSocket for all that streams to the page: a browser has six other connections to a server for all its tabs.
import { get } from "./api.js";

const silence = 40_000; // ms; the gateway says something every 15 s
let link,
  numbers = 0;

// Without a network nothing tells that a connection is lost. One within the machine is there again at once.
addEventListener("offline", () => link?.lose());

// connected returns the link, which it opens if there is none.
function connected() {
  if (link) return link;
  const socket = new WebSocket(`${location.origin.replace("http", "ws")}/page/streams`);
  socket.binaryType = "arraybuffer";
  const streams = new Map(); // what takes the messages of a stream, by its number
  let timer;
  const lose = () => {
    clearTimeout(timer);
    if (link === mine) link = null;
    socket.close();
    for (const s of [...streams.values()]) s.end(new Error("the connection is lost"));
  };
  const listen = () => {
    clearTimeout(timer);
    timer = setTimeout(lose, silence);
  };
  const mine = (link = { socket, streams, lose });
  mine.opened = new Promise((resolve, reject) => {
    socket.onopen = () => resolve(listen());
    socket.onclose = () => {
      lose();
      reject(new Error("there is no connection"));
    };
  });
  // A browser does not tell why it has no connection. If it is signed out, this answer says so.
  mine.opened.catch(() => get("/status").catch(() => {}));
  socket.onmessage = ({ data }) => {
    listen();
    if (typeof data !== "string") {
      return streams.get(new DataView(data).getUint32(0))?.bytes(new Uint8Array(data, 4));
    }
    const { stream, status, ended } = JSON.parse(data);
    if (ended) streams.get(stream)?.end();
    else streams.get(stream)?.begin(status);
  };
  return mine;
}

// stream asks for a path of the admin API, as fetch does. lastEventId is of the last event that the caller has, or "".
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
