const flag = process.env.FLAG || "flag{test}";
require("http").createServer().listen(4003);
