// Typical work of node programs: objects and strings, buffers outside V8's heap, threads, children.
import { fork, execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { fileURLToPath } from "node:url";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";
import zlib from "node:zlib";

const here = fileURLToPath(import.meta.url);

function build(seed) {
  const rows = [];
  for (let i = 0; i < 8000; i++)
    rows.push({ id: i, name: `name ${(i * 7919 + seed) % 5003}`, tags: [i % 7, "x".repeat(i % 50)], at: { x: i / 7 } });
  const text = JSON.stringify(rows);
  const back = JSON.parse(text).filter((row) => row.id % 3).sort((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : a.id - b.id));
  const packed = zlib.deflateSync(Buffer.from(JSON.stringify(back)), { level: 6 });
  const buffers = [];
  for (let i = 0; i < 500; i++) buffers.push(Buffer.alloc(100 + i * 37, i & 255));
  const hash = createHash("sha256").update(zlib.inflateSync(packed));
  for (const buffer of buffers) hash.update(buffer);
  return hash.digest("hex").slice(0, 16);
}

const inThread = (seed) =>
  new Promise((done, failed) => new Worker(here, { workerData: seed }).on("message", done).on("error", failed));
const inChild = (seed) =>
  new Promise((done, failed) => fork(here, ["child", String(seed)]).on("message", done).on("error", failed));

if (!isMainThread) {
  parentPort.postMessage(build(workerData));
} else if (process.argv[2] === "child") {
  process.send(build(Number(process.argv[3])), () => process.exit(0));
} else if (process.argv[2] === "print") {
  console.log(build(99));
} else {
  console.log("alone", build(1));
  console.log("workers", await Promise.all([1, 2, 3, 4].map(inThread)));
  console.log("children", await Promise.all([5, 6].map(inChild)));
  console.log("executed", execFileSync(process.execPath, [here, "print"]).toString().trim());
  const squeezed = await Promise.all([1, 6, 9].map((level) =>
    new Promise((done) => zlib.gzip("cairn ".repeat(200000), { level }, (_, out) => done(zlib.gunzipSync(out).length)))));
  console.log("pool", squeezed);
}
