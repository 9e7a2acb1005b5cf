/* Rank 0 plays 1 KiB messages with every other rank; each rank says where it is. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { SIZE = 1024, ROUNDS = 1000 };

static void play(int rank, int partner, char *ball)
{
    for (int round = 0; round < ROUNDS; round++) {
        int other = rank == 0 ? partner : 0;
        if (rank == 0)
            MPI_Send(ball, SIZE, MPI_CHAR, other, 0, MPI_COMM_WORLD);
        MPI_Recv(ball, SIZE, MPI_CHAR, other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank != 0)
            MPI_Send(ball, SIZE, MPI_CHAR, other, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv)
{
    int rank, size;
    char host[64], ball[SIZE] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    gethostname(host, sizeof host);
    printf("rank %d of %d on %s\n", rank, size, host);
    fflush(stdout);
    for (int partner = 1; partner < size; partner++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double start = MPI_Wtime();
        if (rank == 0 || rank == partner)
            play(rank, partner, ball);
        if (rank == 0)
            printf("0<->%d 1 KiB: %.1f us a round trip\n", partner, (MPI_Wtime() - start) * 1e6 / ROUNDS);
    }
    MPI_Finalize();
    return 0;
}
