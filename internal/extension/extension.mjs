// Written by tapgw install copilot. It gives this terminal's pipe to tapgw, which connects it with
// the gateway.
import { spawn } from "node:child_process";

const child = spawn("@PROGRAM@", ["terminal", "--ensure"], { stdio: "inherit", windowsHide: true });
child.on("error", (error) => {
    console.error(`tapgw: ${error.message}; run tapgw install copilot --extension again`);
    process.exit(1);
});
child.on("exit", (code) => process.exit(code ?? 1));
for (const signal of ["SIGTERM", "SIGINT"]) process.on(signal, () => child.kill(signal));
