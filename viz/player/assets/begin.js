/** A page that is a player and nothing besides. */

start((data) => new Player(data));
