// The package, compiled twice: dist/esm for `import`, dist/cjs for `require`.
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

process.chdir(fileURLToPath(new URL('..', import.meta.url)));
rmSync('dist', { recursive: true, force: true });
const tsc = (...options) => execFileSync('node_modules/.bin/tsc', options, { stdio: 'inherit' });
for (const [folder, type, ...options] of [
  ['dist/esm', 'module'],
  ['dist/cjs', 'commonjs', '--module', 'commonjs'],
]) {
  tsc('--outDir', folder, ...options);
  mkdirSync(folder, { recursive: true });
  writeFileSync(`${folder}/package.json`, `{ "type": "${type}" }\n`);
}
