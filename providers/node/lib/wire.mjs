// The protocol's version and limits, and the helpers that each side of it needs (docs/protocol.md).

export const PROTOCOL_VERSION = 2;
const MIB = 1024 * 1024;
export const MAX_FRAME = 16 * MIB;
export const MAX_RESULT = 5 * MIB;
export const MAX_MESSAGE = 2 * MIB;
export const ANSWER_TIMEOUT = 10_000; // milliseconds for sessions, hello.ack and acks

/** Returns a text of a message, "" if it is of another type. @param {unknown} v */
export const text = (v) => (typeof v === "string" ? v : "");
