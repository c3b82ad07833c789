// The interface that both chat services have.

/**
 * @typedef {string | { text: string, style: "bold" | "code" }} Part text that is shown as it is: no markup counts
 * @typedef {{ label: string, data: string }} Button
 * @typedef {{ parts: Part[], buttons?: Button[] }} Content a message
 *
 * @typedef {object} Incoming a message from a person
 * @property {"message"} type
 * @property {string} id unique; a service may send an event twice
 * @property {string} chat
 * @property {string} user the person's id
 * @property {string} who the person's name, for people
 * @property {string} text without the mention of the bot; "" for a photo and the like
 * @property {boolean} isPrivate the chat has no other person
 * @property {boolean} isMentioned the message is for the bot
 * @property {string} replyTo id of the message that it answers, or ""
 *
 * @typedef {object} Press a person's press of a button
 * @property {"press"} type
 * @property {string} id
 * @property {string} chat
 * @property {string} user
 * @property {string} who
 * @property {string} message id of the message with the button
 * @property {string} data
 * @property {boolean} isPrivate
 * @property {(text: string) => Promise<unknown>} reply tells only the person who pressed
 *
 * @typedef {(event: Incoming | Press) => Promise<void>} Handle resolves when the event need not come again
 *
 * @typedef {object} Service
 * @property {string} name
 * @property {number} limit UTF-16 units that the text of a message may have
 * @property {(chat: string) => number} pace milliseconds from one request about a chat to the next
 * @property {() => Promise<void>} start asks who the bot is; fails if the service refuses its token
 * @property {(state: Record<string, any>, save: () => Promise<void>, handle: Handle, signal: AbortSignal) =>
 *   Promise<void>} listen hands over events, in order, until the signal; state is kept across restarts
 * @property {(chat: string, content: Content) => Promise<string>} send returns the id of the new message
 * @property {(chat: string, id: string, content: Content) => Promise<void>} edit
 */

export {};
