/** Entry point of a player page. */

start((data) => new Player(data));
