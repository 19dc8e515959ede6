// read.js NAMES: reads the files named in a list, one after the other.
const fs = require("fs");
let bytes = 0;
for (const name of fs.readFileSync(process.argv[2], "utf8").trim().split("\n")) bytes += fs.readFileSync(name).length;
console.log(bytes);
