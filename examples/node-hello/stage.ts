// A stage of Catena in TypeScript: greets at /node-hello and declines all other requests.
// docs/protocol.md, whose sections are named below, is all that it is made from.
import fs from 'node:fs';
import http from 'node:http';
import net from 'node:net';
import path from 'node:path';
import * as grpc from '@grpc/grpc-js';
import * as loader from '@grpc/proto-loader';
// `npm run build` makes these types of stage.proto.
import type { ProtoGrpcType } from './generated/stage';
import type { StageHandlers } from './generated/catena/stage/v1/Stage';

const PREFIX = '/node-hello';
const env = process.env;

// 1. Launch: no cookie means that a person has started this.
if (env.CATENA_STAGE_COOKIE !== 'a7c1f5e2-catena-stage') {
  console.error(`${process.argv[1]}: is a stage of Catena: put it into one of the pluginDirs and name it among the stages`);
  process.exit(1);
}
// 7. The end: the pipe ends when the host is gone; signals are the host's business.
new net.Socket({ fd: Number(env.CATENA_STAGE_PARENT_FD), readable: true, writable: false })
  .on('close', () => process.exit(3)).resume();
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => {});

// 3. Output: one JSON object per line on standard error.
const log = (level: 'debug' | 'info' | 'error', message: string, fields: Record<string, unknown> = {}): number =>
  fs.writeSync(2, JSON.stringify({ '@level': level, '@message': message, ...fields }) + '\n');

let config = { greeting: 'hello' };
function isConfig(given: unknown): given is Partial<typeof config> | null {
  return typeof given === 'object' && !Array.isArray(given) &&
    Object.entries(given ?? {}).every(([key, value]) => key === 'greeting' && typeof value === 'string');
}

let draining = false;
const running = new Set<http.ServerResponse>(); // requests in flight
const streams = new Set<http.ServerResponse>(); // those that end when the stage drains

type Handler = (req: http.IncomingMessage, res: http.ServerResponse) => void;

/** Declines: the host sends the request to the next stage. */
const decline: Handler = (req, res) => {
  const asked = req.headers.expect ? { Connection: 'close' } : {}; // the body has not been sent
  res.writeHead(404, { 'X-Catena-Decline': '1', 'Content-Length': '0', ...asked }).end();
};

const greet: Handler = (req, res) => {
  const user: { name?: string } = JSON.parse(String(req.headers['x-catena-user'] ?? '{}'));
  const text = `${config.greeting}, ${user.name ?? 'stranger'}\n`;
  res.writeHead(200, { 'Content-Type': 'text/plain', 'Content-Length': Buffer.byteLength(text) }).end(text);
};

/** Asks for the body if the host waits for that, and reads it to its end. */
function readBody(req: http.IncomingMessage, res: http.ServerResponse, done: (data: Buffer) => void): void {
  if (req.headers.expect) res.writeContinue();
  const parts: Buffer[] = [];
  req.on('data', (part: Buffer) => parts.push(part)).on('end', () => done(Buffer.concat(parts)));
}

const routes = new Map<string, Handler>([
  [PREFIX, greet],
  // The check endpoints of section 9.
  [PREFIX + '/check/echo', (req, res) => readBody(req, res, (data) => res.end(data))],
  [PREFIX + '/check/trailers', (req, res) => readBody(req, res, (data) => {
    res.writeHead(200, { Trailer: 'X-Check-Trailer' }).write(data);
    res.addTrailers({ 'X-Check-Trailer': req.trailers['x-check-trailer'] ?? '' });
    res.end();
  })],
  [PREFIX + '/check/stream', (_, res) => {
    res.write('begin\n');
    if (draining) return void res.end();
    streams.add(res);
    res.on('close', () => streams.delete(res));
  }],
]);

// 5. Data socket: the host owns all timeouts, and a head may be long.
const server = http.createServer({ maxHeaderSize: 4 << 20, requestTimeout: 0, headersTimeout: 0, keepAliveTimeout: 0 });
/** The path of a request: claims are compared with it decoded. */
function decoded(url = ''): string {
  try { return decodeURIComponent(url.replace(/\?.*/, '')); } catch { return url; }
}
const handle: Handler = (req, res) => {
  running.add(res);
  res.on('close', () => running.delete(res));
  (routes.get(decoded(req.url)) ?? decline)(req, res);
};
server.on('request', handle).on('checkContinue', handle);
server.on('upgrade', (req, socket, head) => {
  socket.on('error', () => socket.destroy());
  const declined = 'HTTP/1.1 404 Not Found\r\nX-Catena-Decline: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n';
  if (req.url !== PREFIX + '/check/upgrade') return void socket.end(declined);
  socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
  socket.write(head);
  socket.pipe(socket);
});

// 4. RPCs: those that are not here are UNIMPLEMENTED.
const paths = { claims: [{ path: PREFIX, match: 'PREFIX' as const }], listedPaths: [PREFIX] };
const called = new Set<string>();
const again = { code: grpc.status.FAILED_PRECONDITION, details: 'was called already' };
const stage: Pick<StageHandlers, 'Describe' | 'Configure' | 'PrepareRun' | 'Drain' | 'Stop'> = {
  Describe: (_, reply) => reply(null, {
    name: 'node-hello', version: 'v0.1.0', sdk: `node ${process.version}`, summary: 'greets its user',
    discardsBodies: true, // Node.js reads what a handler leaves
    configSchema: '{"type":"object","properties":{"greeting":{"type":"string"}},"additionalProperties":false}',
  }),
  Configure(call, reply) {
    if (called.has('Configure')) return reply(again);
    called.add('Configure');
    const given: unknown = JSON.parse(call.request.config.toString() || 'null');
    if (!isConfig(given)) {
      return reply({ code: grpc.status.UNKNOWN, details: 'config: want an object with nothing but a greeting, which is a string' });
    }
    config = { ...config, ...given };
    reply(null, paths);
  },
  PrepareRun(_, reply) {
    if (called.has('PrepareRun')) return reply(again);
    called.add('PrepareRun');
    server.listen({ fd: Number(env.CATENA_STAGE_LISTENER_FD) }, () => {
      log('info', 'serves', { greeting: config.greeting });
      reply(null, paths);
    });
  },
  Drain(call, reply) {
    draining = true;
    const spread = Number(call.request.spread?.seconds ?? 0) * 1000 + (call.request.spread?.nanos ?? 0) / 1e6;
    streams.forEach((res) => setTimeout(() => res.end(), Math.random() * spread)); // each at its own moment
    const deadline = new Date(call.getDeadline()).getTime() - 100;
    const look = (): unknown => (running.size === 0 || Date.now() > deadline
      ? reply(null, { running: running.size }) : setTimeout(look, 20));
    look();
  },
  Stop: (_, reply) => { server.closeAllConnections(); reply(null, {}); },
};
const shutdown: grpc.handleUnaryCall<object, object> = (_, reply) => { reply(null, {}); setTimeout(() => process.exit(0), 100); };

// 2. Handshake: no certificate, the directory of mode 0700 protects the control socket.
const file = ['stage.proto', '../stage.proto', '../../../sdk/stagev1/stage.proto'].map((f) => path.join(__dirname, f)).find(fs.existsSync);
const definition = loader.loadSync(file ?? 'stage.proto', { longs: Number, enums: String, defaults: true });
const proto = grpc.loadPackageDefinition(definition) as unknown as ProtoGrpcType;
const empty = { requestStream: false, responseStream: false, requestSerialize: () => Buffer.alloc(0), requestDeserialize: () => ({}),
  responseSerialize: () => Buffer.alloc(0), responseDeserialize: () => ({}) } as const;
const control = new grpc.Server({ 'grpc.max_receive_message_length': 64 << 20 });
control.addService(proto.catena.stage.v1.Stage.service, stage);
control.addService({ Shutdown: { path: '/plugin.GRPCController/Shutdown', ...empty } }, { Shutdown: shutdown });
const socket = path.join(env.PLUGIN_UNIX_SOCKET_DIR ?? '', 'control');
control.bindAsync('unix:' + socket, grpc.ServerCredentials.createInsecure(), (err) => {
  if (err) throw err;
  fs.writeSync(1, `1|1|unix|${socket}|grpc|\n`);
});
