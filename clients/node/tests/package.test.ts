/** The package as a user installs it: packed, installed in an empty folder, and used from each kind of module. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';

const folder = mkdtempSync(join(tmpdir(), 'redis-lock-package-'));
after(() => rmSync(folder, { recursive: true }));
const run = (command: string, ...words: string[]) => execFileSync(command, words, { cwd: folder, encoding: 'utf8' });

test('the packed package can be imported and required, and its types are found', () => {
    // What `npm pack` builds is there: other tests use it at this moment.
    execFileSync('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', folder]);
    const archive = readdirSync(folder).find((name) => name.endsWith('.tgz'))!;
    writeFileSync(join(folder, 'package.json'), '{ "private": true }');
    run('npm', 'install', '--silent', '--offline', '--no-audit', '--no-fund', `./${archive}`);
    const installed = join(folder, 'node_modules/redis-lock-client');
    assert.deepEqual(readdirSync(installed).sort(), ['LICENSE', 'README.md', 'dist', 'package.json']);

    const check = "if (!LockClient || !(new ConfigError('x') instanceof LockError)) throw new Error('exports');";
    const names = '{ ConfigError, LockClient, LockError }';
    writeFileSync(
        join(folder, 'a.mjs'),
        `import ${names} from 'redis-lock-client';\n${check}\nconsole.log('imported');`,
    );
    writeFileSync(
        join(folder, 'b.cjs'),
        `const ${names} = require('redis-lock-client');\n${check}\nconsole.log('required');`,
    );
    assert.equal(run(process.execPath, 'a.mjs') + run(process.execPath, 'b.cjs'), 'imported\nrequired\n');

    // With the declarations checked, which no other test does.
    mkdirSync(join(folder, 'node_modules/@types'));
    symlinkSync(join(process.cwd(), 'node_modules/@types/node'), join(folder, 'node_modules/@types/node'));
    cpSync('node_modules/undici-types', join(folder, 'node_modules/undici-types'), { recursive: true });
    const program = `
    import { type Hold, LockClient, LockLostError, type RedisClient } from 'redis-lock-client';
    export { openTelemetry } from 'redis-lock-client/opentelemetry';
    export { TestServer } from 'redis-lock-client/testing';
    export async function work(redis: RedisClient): Promise<number> {
      await using locks = new LockClient(redis, { responseTimeout: 1_000 });
      await using hold: Hold = await locks.lock(['a', 'b'], { lease: 10_000, mode: 'write' }).acquire({ wait: 1 });
      const maybe: Hold | null = await locks.semaphore('s', { permits: 2 }).tryAcquire();
      const lost: LockLostError | undefined = hold.signal.reason;
      // @ts-expect-error the result is that of the function
      const text: string = await locks.using('a', (held) => held.token);
      const seven: number = await locks.using('a', { wait: 5 }, async () => 7);
      return (maybe?.token ?? 0) + seven + text.length + (lost?.reason === 'taken' ? 1 : 0);
    }`;
    const files = ['types.mts', 'types.cts'];
    for (const name of files) writeFileSync(join(folder, name), program);
    const target = ['--target', 'es2022', '--lib', 'es2023,esnext.disposable', '--types', 'node'];
    run(
        join(process.cwd(), 'node_modules/.bin/tsc'),
        '--noEmit',
        '--strict',
        '--module',
        'nodenext',
        ...target,
        ...files,
    );
});
