/** Entry point of a page that is only a player. */

start((data) => new Player(data));
