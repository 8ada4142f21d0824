//! The page: papers, figures, plots and tables.

use std::fmt::Write;

use super::plot::{Plot, escape};
use crate::reproduce::figure::{Figure, X};
use crate::reproduce::papers::Paper;
use crate::reproduce::results::Measurement;
use crate::reproduce::results_command::circumstances;
use crate::reproduce::summary::{Line, MEANING, total};
use crate::reproduce::table::{deviation, distinct, number, paper, position};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("sort.js");

/// Writes the page.
pub fn page(papers: &[(&Paper, Vec<Figure>)], all: &[Measurement]) -> String {
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<link rel=\"icon\" href=\"data:,\">\n\
         <title>Bristlecone: the papers\u{2019} figures</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <header>\n<h1>The papers\u{2019} figures, ours beside theirs</h1>\n"
    );
    for line in circumstances(all) {
        let _ = writeln!(html, "<p class=\"made\">{}</p>", escape(&line));
    }
    html.push_str(
        "<p>Counted figures come from a model of the device, simulated ones from a model of many cores; both are the same \
         on every machine. Timed ones are of the \
         machine named above. A ring is the paper\u{2019}s number. Deviations are in percent of it, or in points where both are \
         percent. Click on a head to sort by that column.</p>\n",
    );
    let shown: Vec<Shown<'_>> = papers
        .iter()
        .map(|(paper, figures)| (*paper, measured(paper, figures, all)))
        .filter(|(_, figures)| !figures.is_empty())
        .collect();
    summary(&mut html, &shown);
    html.push_str("<nav>\n");
    for (paper, figures) in &shown {
        let links: Vec<String> = figures
            .iter()
            .map(|(figure, _)| format!("<a href=\"#{0}-{1}\">{1}</a>", paper.name, anchor(&figure.name)))
            .collect();
        let _ = writeln!(html, "<p><a href=\"#{0}\"><b>{0}</b></a> {1}</p>", paper.name, links.join(" "));
    }
    html.push_str("</nav>\n</header>\n<main>\n");
    for (paper, figures) in &shown {
        let _ = writeln!(html, "<h2 id=\"{}\">{}</h2>", paper.name, escape(paper.title()));
        for (figure, rows) in figures {
            show(&mut html, paper, figure, rows);
        }
    }
    let _ = write!(html, "</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
    html
}

/// A paper, and its figures that have results.
type Shown<'a> = (&'a Paper, Vec<(&'a Figure, Vec<&'a Measurement>)>);

/// Writes which figures are met.
fn summary(html: &mut String, shown: &[Shown<'_>]) {
    let _ = writeln!(html, "<h2>Summary</h2>\n<p>{}</p>", escape(MEANING));
    for (paper, figures) in shown {
        let lines: Vec<Line> = figures.iter().filter_map(|(figure, rows)| Line::of(figure, rows)).collect();
        let (met, missed, unmeasured) = total(&lines);
        let _ = writeln!(
            html,
            "<details><summary><b>{}</b>: {met} numbers met, {missed} missed, {unmeasured} not measured</summary>\n\
             <div class=\"wide\">\n<table>\n<thead><tr><th>figure</th><th>kind</th><th>met</th><th>missed</th>\
             <th>why</th></tr></thead>\n<tbody>",
            paper.name
        );
        for line in &lines {
            let Line { figure, kind, met, missed, .. } = line;
            let (figure, why) = (escape(figure), escape(&line.reasons()));
            let _ = writeln!(
                html,
                "<tr><td>{figure}</td><td>{}</td><td class=\"n\">{met}</td><td class=\"n\">{missed}</td>\
                 <td>{why}</td></tr>",
                kind.name()
            );
        }
        html.push_str("</tbody>\n</table>\n</div>\n</details>\n");
    }
}

fn anchor(name: &str) -> String {
    name.replace(' ', "-")
}

/// Returns the figures of a paper that have results.
fn measured<'a>(
    paper: &Paper,
    figures: &'a [Figure],
    all: &'a [Measurement],
) -> Vec<(&'a Figure, Vec<&'a Measurement>)> {
    let of = |figure: &'a Figure| {
        let is_of = |result: &&Measurement| result.paper == paper.name && result.figure == figure.name;
        (figure, all.iter().filter(is_of).collect::<Vec<_>>())
    };
    figures.iter().map(of).filter(|(_, rows)| !rows.is_empty()).collect()
}

/// Maximum number of points in a table: curves are in the plot and in the file of results.
const ROWS_MAX: usize = 40;

fn show(html: &mut String, paper: &Paper, figure: &Figure, rows: &[&Measurement]) {
    let kind = figure.kind.name();
    let _ = writeln!(
        html,
        "<section id=\"{}-{}\">\n<h3>{} <span class=\"kind {kind}\">{kind}</span></h3>",
        paper.name,
        anchor(&figure.name),
        escape(&format!("{}: {}", figure.name, figure.title))
    );
    if !figure.note.is_empty() {
        let _ = writeln!(html, "<p>{}</p>", escape(&figure.note));
    }
    html.push_str("<div class=\"plots\">\n");
    for (metric, spread) in panels(rows) {
        let of = |row: &&&Measurement| row.metric == metric && (row.x != X::None) == spread;
        // Rows with neither a measurement nor a value of the paper are omitted.
        let has_value = |row: &&Measurement| row.value.or(row.paper_value).is_some();
        let rows: Vec<&Measurement> = rows.iter().filter(of).copied().filter(has_value).collect();
        let unit = rows.first().map_or("", |row| row.unit.as_str());
        let plot =
            Plot { title: metric, x: &figure.x, unit, logarithmic: figure.logarithmic && unit != "%", rows };
        let svg = plot.svg();
        if !svg.is_empty() {
            let _ = writeln!(html, "<figure>\n{svg}</figure>");
        }
    }
    html.push_str("</div>\n");
    table(html, figure, rows);
    html.push_str("</section>\n");
}

/// Returns the metrics of rows; those that vary with the position are separate from the others.
fn panels<'a>(rows: &[&'a Measurement]) -> Vec<(&'a str, bool)> {
    let mut panels = Vec::new();
    for panel in rows.iter().map(|row| (row.metric.as_str(), row.x != X::None)) {
        if !panels.contains(&panel) {
            panels.push(panel);
        }
    }
    panels
}

fn table(html: &mut String, figure: &Figure, rows: &[&Measurement]) {
    let is_curve = |row: &Measurement| {
        rows.iter().filter(|other| (&other.series, &other.metric) == (&row.series, &row.metric)).count()
            > ROWS_MAX
    };
    let shown: Vec<&Measurement> = rows.iter().filter(|row| !is_curve(row)).copied().collect();
    if shown.is_empty() {
        return;
    }
    let open = if shown.len() <= 16 { " open" } else { "" };
    let _ = writeln!(
        html,
        "<details{open}><summary>{} numbers</summary>\n<div class=\"wide\">\n<table class=\"sortable\">",
        shown.len()
    );
    let heads = [
        "series",
        figure.x.as_str(),
        "what",
        "ours",
        "unit",
        "least",
        "most",
        "paper",
        "deviation",
        "remark",
    ];
    let heads: Vec<String> = heads
        .iter()
        .map(|head| format!("<th scope=\"col\"><button type=\"button\">{}</button></th>", escape(head)))
        .collect();
    let _ = writeln!(html, "<thead><tr>{}</tr></thead>\n<tbody>", heads.concat());
    for row in shown {
        let cell = |text: String, sort: Option<f64>| match sort {
            Some(sort) => format!("<td class=\"n\" data-sort=\"{sort}\">{}</td>", escape(&text)),
            None => format!("<td>{}</td>", escape(&text)),
        };
        let numeric = |value: Option<f64>| {
            cell(value.map_or_else(|| "\u{2013}".to_owned(), number), Some(value.unwrap_or(f64::MIN)))
        };
        let x = if let X::Number(x) = row.x { Some(x) } else { None };
        let spread = |value: Option<f64>| {
            if row.rounds.len() > 1 { numeric(value) } else { cell(String::new(), Some(f64::MIN)) }
        };
        let why = [row.paper_place.as_deref().unwrap_or_default(), &row.remark];
        let why: Vec<&str> = why.into_iter().filter(|part| !part.is_empty()).collect();
        let cells = [
            cell(row.series.clone(), None),
            cell(position(&row.x), x),
            cell(row.metric.clone(), None),
            numeric(row.value),
            cell(row.unit.clone(), None),
            spread(row.min),
            spread(row.max),
            cell(paper(row).unwrap_or_default(), Some(row.paper_value.unwrap_or(f64::MIN))),
            cell(deviation(row).unwrap_or_default(), Some(row.deviation.unwrap_or(f64::MIN))),
            cell(why.join("; "), None),
        ];
        let _ = writeln!(html, "<tr>{}</tr>", cells.concat());
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
    let lines = distinct(rows.iter().flat_map(|row| &row.arguments));
    let _ = writeln!(html, "<details><summary>{} command lines</summary>\n<pre>", lines.len());
    for line in lines {
        let _ = writeln!(html, "bristlecone-lab {}", escape(line));
    }
    html.push_str("</pre>\n</details>\n</details>\n");
}
