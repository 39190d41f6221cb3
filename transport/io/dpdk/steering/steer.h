/* What the program that steers packets shares with the ends they are for. C, for both sides. */
#pragma once

/* Of the sockets that hold the ends' UDP ports in the kernel (SO_MARK), by which the program knows those ports. */
#define STEER_MARK 0x636c7573u /* "clus" */
