// Counts its answers, beside a timer, and two threads that are asked for numbers.
const { createServer } = require("http");
const { Worker } = require("worker_threads");

const square = `
const { parentPort } = require("worker_threads");
parentPort.on("message", (number) => parentPort.postMessage(number * number));
`;

for (const kind of ["first", "second"]) {
    const worker = new Worker(square, { eval: true });
    let number = 0;
    worker.on("message", (heard) => {
        if (heard !== number * number) console.log("wrong", heard);
        if (++number % 10 === 0) console.log(kind, number);
        setTimeout(() => worker.postMessage(number), 10);
    });
    worker.postMessage(number);
}

let ticks = 0;
setInterval(() => {
    if (++ticks % 10 === 0) console.log("timer", ticks);
}, 10);

let answered = 0;
createServer((_, answer) => {
    const page = String(++answered);
    answer.writeHead(200, { "Content-Length": page.length });
    answer.end(page);
}).listen(80, "0.0.0.0");
