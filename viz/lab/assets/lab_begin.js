/** Entry point of an interactive planning page (lab). */

start((data) => new Lab(data));
