// Where the search of the site leads: node search.mjs DIR WORD=PAGE,PAGE...
// For WORD the search of mdBook in DIR (target/site), as a browser does it, must list these headings before all others.
import { readFileSync } from 'node:fs'
import { createContext, runInContext } from 'node:vm'

const [dir, ...expected] = process.argv.slice(2)
const browser = createContext({ search: {} })
browser.window = browser
for (const file of ['elasticlunr.min.js', 'searchindex.js']) runInContext(readFileSync(`${dir}/${file}`, 'utf8'), browser)
const { search, elasticlunr } = browser
const index = elasticlunr.Index.load(search.index)

let failed = false
for (const line of expected) {
    const [word, list] = line.split('=')
    const pages = list.split(',')
    const found = index.search(word, search.search_options).map(({ ref }) => search.doc_urls[ref])
    if (pages.every((page) => found.slice(0, pages.length).includes(page))) continue
    console.log(`docs: the search for ${word} leads not to ${list} first, but to: ${found.slice(0, 5).join(', ')}`)
    failed = true
}
process.exit(failed ? 1 : 0)
