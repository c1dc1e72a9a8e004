export { LockClient, type LockClientOptions, type RedisClient } from './client.js';
export { Election, type Leader } from './election.js';
export * from './errors.js';
export { Hold } from './hold.js';
export type { Holder, LockInfo, SemaphoreInfo } from './info.js';
export { type AcquireOptions, Lock, Semaphore } from './lock.js';
export type { Observer, Statistics, Subject } from './observe.js';
export type { HoldOptions, LockOptions, Mode, SemaphoreOptions } from './terms.js';
