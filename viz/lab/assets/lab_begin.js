/** Entry point of an interactive planning page (lab). */

import { start } from "../../player/assets/playback.js";
import { Lab } from "./lab.js";

start((data) => new Lab(data));
