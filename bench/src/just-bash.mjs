// just-bash behind the least of an MCP server: its interpreter in this process, a folder read through.
// usage: node just-bash.mjs MODULE ROOT
import { createInterface } from "node:readline";

const [, , module, root] = process.argv;
const { Bash, OverlayFs } = await import(module);
const files = new OverlayFs({ root, mountPoint: root, maxFileReadSize: 64 << 20 });
const shell = new Bash({ fs: files, cwd: root });

const results = {
  initialize: () => ({
    protocolVersion: "2025-06-18",
    capabilities: { tools: {} },
    serverInfo: { name: "just-bash", version: "0" },
  }),
  "tools/list": () => ({ tools: [{ name: "bash", inputSchema: { type: "object" } }] }),
  "tools/call": async ({ arguments: { commands } }) => {
    const { stdout, stderr, exitCode } = await shell.exec(commands);
    return { isError: exitCode !== 0, content: [{ type: "text", text: stdout + stderr }] };
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined) continue;
  const result = await (results[method] ?? (() => ({})))(params);
  process.stdout.write(JSON.stringify({ jsonrpc: "2.0", id, result }) + "\n");
}
