/** A page that is a lab, with all that it offers in it. */

start((data) => new Lab(data));
