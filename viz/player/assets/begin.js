/** Entry point of a player page. */

import { Player } from "./main.js";
import { start } from "./playback.js";

start((data) => new Player(data));
