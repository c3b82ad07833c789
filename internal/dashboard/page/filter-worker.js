import { decide } from "./filter.js";

onmessage = ({ data: { rules, texts } }) => postMessage(decide(rules, texts));
postMessage("ready");
