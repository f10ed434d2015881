/** Entry point of a page that is a lab, with its candidates. */

start((data) => new Lab(data));
