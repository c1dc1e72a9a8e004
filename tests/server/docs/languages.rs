//! The tables of languages in the README and in `clients/README.md` are those of `clients/languages.tsv`.

use crate::common::page::{root, text};

const BEGIN: &str = "<!-- languages -->\n";
const END: &str = "<!-- end of languages -->\n";

/// `UPDATE_PAGES=1` writes them.
#[test]
fn the_tables_of_languages_are_those_of_one_file() {
    let file = text("clients/languages.tsv");
    let lines = file.lines().filter(|line| !line.starts_with('#'));
    let mut rows: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    let packages = rows.remove(1);
    let rule = vec!["---"; packages.len()];
    let languages = rows[0].clone();
    rows.insert(1, rule);
    assert!(rows.iter().all(|row| row.len() == languages.len()));
    let rows: String = rows.iter().map(|row| in_a_table(row)).collect();

    let page = "clients/README.md";
    let former = text(page);
    let (before, rest) = former.split_once(BEGIN).expect("a begin");
    let (_, after) = rest.split_once(END).expect("an end");
    check(page, &former, &format!("{before}{BEGIN}{rows}{END}{after}"));

    let former = text("README.md");
    let packages: Vec<_> = languages.iter().zip(&packages).skip(1).collect();
    let lines = former.split_inclusive('\n').map(|line| {
        let is_of = |language: &str| line.starts_with(&format!("| {language} | "));
        let package = packages.iter().find(|(language, _)| is_of(language));
        package.map_or(line.to_string(), |(language, said)| {
            let directory = format!("clients/{}", language.to_lowercase());
            in_a_table(&[
                language,
                said,
                &format!("[{directory}]({directory}/README.md)"),
            ])
        })
    });
    let readme: String = lines.collect();
    check("README.md", &former, &readme);
    for (language, said) in packages {
        assert!(
            readme.contains(&format!("| {language} | {said} | ")),
            "{language}"
        );
    }
}

fn in_a_table(cells: &[&str]) -> String {
    format!("| {} |\n", cells.join(" | "))
}

fn check(page: &str, text: &str, expected: &str) {
    if std::env::var_os("UPDATE_PAGES").is_some() {
        return std::fs::write(root().join(page), expected).expect("a page");
    }
    assert!(
        text == expected,
        "{page}: UPDATE_PAGES=1 make test-server TESTS=languages"
    );
}
