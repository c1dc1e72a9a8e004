// test.mjs [OPTION OF NODE...]: builds the package, compiles the tests (which tests its types), and runs them.
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import './build.mjs';

process.chdir(fileURLToPath(new URL('..', import.meta.url)));
rmSync('build', { recursive: true, force: true });
execFileSync('node_modules/.bin/tsc', ['-p', 'tests'], { stdio: 'inherit' });
const files = readdirSync('build')
  .filter((name) => name.endsWith('.test.js'))
  .map((name) => `build/${name}`);
// Most tests wait for servers, so more files run at a time than there are cores.
const options = ['--test', '--test-concurrency=6', '--test-timeout=600000', ...process.argv.slice(2)];
process.exit(spawnSync(process.execPath, [...options, ...files], { stdio: 'inherit' }).status ?? 1);
